"""Rules by disks and bytes (R5, R6, R7): measure disks and replicas, and derive bounds from that."""
