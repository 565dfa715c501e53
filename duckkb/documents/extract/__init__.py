"""What files say that are no text themselves: PDF, DOCX and HTML, read in a process that may be killed."""
