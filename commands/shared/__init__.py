"""What several commands share: options, loading what they name, output, and artifacts in words."""
