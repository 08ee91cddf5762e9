---- MODULE Quorum ----
\* Quorum inserts and reads that need everything committed, as in published/replitree_published/packed/models/quorum.py, with at most one read.
EXTENDS Naturals, FiniteSets
CONSTANTS Replicas, Records, Needed
VARIABLES length, failed, open, members, parts, pointer, active, read
vars == <<length, failed, open, members, parts, pointer, active, read>>

Last == length - 1
Good == {n \in 0..(length - 1) : n \notin failed /\ ~(open /\ n = Last)}
Shown(r) == parts[r] \cap Good
Highest(numbers) == CHOOSE n \in numbers : \A m \in numbers : n >= m
Events == 2 * length - (IF open THEN 1 ELSE 0)
AtOpen(r) == open /\ pointer[r] = Last /\ r \notin members
Fetched(r) == /\ parts' = [parts EXCEPT ![r] = @ \cup {pointer[r]}]
              /\ pointer' = [pointer EXCEPT ![r] = @ + 1]
Closed == open' = FALSE /\ members' = {}

Init == /\ length = 0 /\ failed = {} /\ open = FALSE /\ members = {} /\ read = <<>>
        /\ parts = [r \in Replicas |-> {}]
        /\ pointer = [r \in Replicas |-> 0]
        /\ active = [r \in Replicas |-> TRUE]

Insert(r) == /\ ~open /\ length < Records /\ active[r]
             /\ open' = TRUE /\ members' = {r} /\ length' = length + 1
             /\ parts' = [parts EXCEPT ![r] = @ \cup {length}]
             /\ UNCHANGED <<failed, pointer, active, read>>
Execute(r) == /\ active[r] /\ pointer[r] < length /\ pointer[r] \notin failed /\ ~AtOpen(r)
              /\ Fetched(r)
              /\ UNCHANGED <<length, failed, open, members, active, read>>
Update(r) == /\ active[r] /\ AtOpen(r) /\ ~(\A q \in members : ~active[q])
             /\ Fetched(r) /\ members' = members \cup {r}
             /\ UNCHANGED <<length, failed, open, active, read>>
Fail(r) == /\ active[r] /\ AtOpen(r) /\ \A q \in members : ~active[q]
           /\ failed' = failed \cup {Last} /\ Closed
           /\ UNCHANGED <<length, parts, pointer, active, read>>
End(r) == /\ active[r] /\ open /\ r \in members /\ Cardinality(members) >= Needed
          /\ Closed
          /\ UNCHANGED <<length, failed, parts, pointer, active, read>>
Leave(r) == active[r] /\ active' = [active EXCEPT ![r] = FALSE] /\ UNCHANGED <<length, failed, open, members, parts, pointer, read>>
Return(r) == ~active[r] /\ active' = [active EXCEPT ![r] = TRUE] /\ UNCHANGED <<length, failed, open, members, parts, pointer, read>>
Read(r) == /\ active[r] /\ read = <<>> /\ Shown(r) # {} /\ Shown(r) = Good
           /\ read' = <<Events, Highest(Shown(r))>>
           /\ UNCHANGED <<length, failed, open, members, parts, pointer, active>>
Terminate == ~open /\ length = Records /\ read # <<>> /\ UNCHANGED vars

Next == \/ \E r \in Replicas : Insert(r) \/ Execute(r) \/ (pointer[r] < length /\ (Update(r) \/ Fail(r))) \/ End(r)
        \/ \E r \in Replicas : Leave(r) \/ Return(r) \/ Read(r)
        \/ Terminate
Spec == Init /\ [][Next]_vars
Holds == \A n \in Good : Cardinality({r \in Replicas : n \in parts[r]}) >= Needed
====
