"""Documents translated with their structure kept: marked-up text, and the formats of offices, books and translators."""
