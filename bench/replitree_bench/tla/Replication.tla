---- MODULE Replication ----
\* Inserts and merges, as in published/replitree_published/packed/models/replication.py: an entry is the set of what it merges, empty for an insert.
EXTENDS Naturals, Sequences
CONSTANTS Replicas, Records, Nobody
VARIABLES log, parts, pointer, leader
vars == <<log, parts, pointer, leader>>

Init == log = <<>> /\ parts = [r \in Replicas |-> {}] /\ pointer = [r \in Replicas |-> 0] /\ leader = Nobody

New == Len(log)
Insert(r) == /\ New < Records
             /\ log' = Append(log, {})
             /\ parts' = [parts EXCEPT ![r] = @ \cup {New}]
             /\ UNCHANGED <<pointer, leader>>
Execute(r) == /\ pointer[r] < Len(log)
              /\ parts' = [parts EXCEPT ![r] = (@ \cup {pointer[r]}) \ log[pointer[r] + 1]]
              /\ pointer' = [pointer EXCEPT ![r] = @ + 1]
              /\ UNCHANGED <<log, leader>>
Lead(r) == leader = Nobody /\ leader' = r /\ UNCHANGED <<log, parts, pointer>>
Expire == leader # Nobody /\ leader' = Nobody /\ UNCHANGED <<log, parts, pointer>>
Merge(r, p, q) == /\ leader = r /\ New < Records /\ p # q
                  /\ log' = Append(log, {p, q})
                  /\ parts' = [parts EXCEPT ![r] = (@ \cup {New}) \ {p, q}]
                  /\ UNCHANGED <<pointer, leader>>
Terminate == New = Records /\ UNCHANGED vars

Next == \/ \E r \in Replicas : Insert(r) \/ Execute(r) \/ Lead(r)
        \/ \E r \in Replicas : \E p, q \in parts[r] : Merge(r, p, q)
        \/ Expire \/ Terminate
Spec == Init /\ [][Next]_vars
Holds == (\A r \in Replicas : pointer[r] = Len(log)) => \A r, q \in Replicas : parts[r] = parts[q]
====
