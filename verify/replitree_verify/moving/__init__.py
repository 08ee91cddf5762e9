"""Models of parts that move between disks and the object store: several threads of each replica, and a crash of all of them."""
