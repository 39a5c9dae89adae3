"""Several clusters at once: the file that names them, one plan over all, and its trim, cluster by cluster."""
