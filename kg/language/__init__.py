"""Text processing for English that consolidation, search and features share: tokens, dates, names, redaction."""
