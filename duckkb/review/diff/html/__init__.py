"""A difference as one page that works from disk: `page` writes it, `page.js` shows it, `page.css` is its look."""
