"""The translation server: bundles behind the APIs of LibreTranslate and DeepL, and one of its own."""
