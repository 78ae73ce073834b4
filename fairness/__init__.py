"""Who is served how well: acceptance, expected speed-up, fitness and fertility by language or task."""
