---- MODULE TruncateLog ----
\* Log cleaning, as in published/replitree_published/packed/models/truncate_log.py.
EXTENDS Naturals
CONSTANTS Replicas, Records
VARIABLES length, gone, pointer, active, lost
vars == <<length, gone, pointer, active, lost>>

Good(r) == active[r] /\ ~lost[r]
Least(numbers) == CHOOSE n \in numbers : \A m \in numbers : n <= m
Executed == LET pointers == {pointer[r] : r \in {q \in Replicas : active[q]}}
            IN IF pointers = {} THEN 0 ELSE Least(pointers)

Init == /\ length = 0 /\ gone = 0
        /\ pointer = [r \in Replicas |-> 0]
        /\ active = [r \in Replicas |-> TRUE]
        /\ lost = [r \in Replicas |-> FALSE]

Insert(r) == Good(r) /\ length < Records /\ length' = length + 1 /\ UNCHANGED <<gone, pointer, active, lost>>
Leave(r) == Good(r) /\ active' = [active EXCEPT ![r] = FALSE] /\ UNCHANGED <<length, gone, pointer, lost>>
Return(r) == ~active[r] /\ ~lost[r] /\ active' = [active EXCEPT ![r] = TRUE] /\ UNCHANGED <<length, gone, pointer, lost>>
Execute(r) == /\ Good(r) /\ pointer[r] < length
              /\ pointer' = [pointer EXCEPT ![r] = @ + 1]
              /\ UNCHANGED <<length, gone, active, lost>>
Clear == LET prefix == IF Executed > gone THEN Executed ELSE gone
         IN /\ length > 0
            /\ gone' = prefix
            /\ lost' = [r \in Replicas |-> pointer[r] < prefix]
            /\ UNCHANGED <<length, pointer, active>>
Clone(r, source) == /\ ~active[r] /\ lost[r] /\ Good(source)
                    /\ active' = [active EXCEPT ![r] = TRUE]
                    /\ lost' = [lost EXCEPT ![r] = FALSE]
                    /\ pointer' = [pointer EXCEPT ![r] = pointer[source]]
                    /\ UNCHANGED <<length, gone>>
Terminate == length = Records /\ UNCHANGED vars

Next == \/ \E r \in Replicas : Insert(r) \/ Leave(r) \/ Return(r) \/ Execute(r)
        \/ \E r, source \in Replicas : Clone(r, source)
        \/ Clear \/ Terminate
Spec == Init /\ [][Next]_vars
Holds == \A r \in Replicas : active[r] => gone <= pointer[r]
====
