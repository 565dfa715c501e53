"""What the campaigns share: how faults, crowds, hostile input and forged bases are made, and what they are judged by.

- `campaign`: how large a campaign is, its seed, and what it counts; `oracle`: what the files of a base hold, read without duckkb.
- `forks`: the warm process that forks for whoever wants a process, of the product or of a weakened copy.
- `faults`: children with hooks in the calls by which Python touches files: where one dies, tears a write or fails, the same
  under strace, and the state of a disk after a power cut.
- `crowd`: many real processes at once over one base: workers, scripts for them, and a model of what they may find.
- `fuzz`: inputs that grow from valid ones, with the book that says what is right; how they mutate, and which branches they take.
- `bad_inputs`: bases, settings and streams that are wrong by name, and what a user would complain of in the answer.
- `hostile`: repositories with traps, forged caches, places that links lead to.
- `merges`: histories of branches, and what becomes of records in them by an oracle of dictionaries.
- `mcp`: what the official suite of MCP asks of a server beyond what duckkb has, and what it finds missing.
- `one_day`: a clock by which midnight does not pass between two writes of a test.
- `pages`: a hostile and a harmless base of one shape, a walk over all pages of a served base, and what each may be.
- `postgres`: a real PostgreSQL with pgvector, one a session, or one of a test's own to be killed.
- `real_chat`: a small model on a real server of llama.cpp; `needle_model`: one that chooses tools, as a `ports.ChatModel`.
- `servers`: `duckkb serve` as a process; `worlds`, `served_worlds`: bases that a caller must not be able to tell apart.
- `sql`: conditions and statements by grammar, known ways out, bombs, and what they mean by plain Python.
"""
