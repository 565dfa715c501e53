export * from "./actions.js";
export * from "./http.js";
