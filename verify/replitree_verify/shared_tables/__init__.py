"""Tables on an object store: the procedures of `shares.sharing` around those of replicas, with disks, in every order."""
