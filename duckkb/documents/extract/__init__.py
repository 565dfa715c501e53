"""Extracts text from PDF, DOCX and HTML files in a process that can be killed."""
