"""What a trained bundle is told from validation data, how it searches and is believed; and how it becomes smaller."""
