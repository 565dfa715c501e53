"""What campaigns over the pages of a served base share: hostile and harmless bases, a judge of what is shown, and requests drawn at random."""
