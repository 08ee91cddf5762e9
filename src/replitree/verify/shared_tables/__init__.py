"""Tables on an object store: the procedures of `protocol.sharing` around those of replicas, with disks, in every order."""
