"""What several commands share: options, loading what they name, output and errors, and drafts in colour."""
