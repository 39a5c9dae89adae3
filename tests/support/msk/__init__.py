"""MSK's IAM without AWS: a broker that checks signatures, and the Java library that makes them."""
