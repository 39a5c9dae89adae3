"""Values that were written with a schema registry's serializers (Confluent's wire format)."""
