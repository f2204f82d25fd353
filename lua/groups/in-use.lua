--- @call
-- Queue -> set of its groups -> whether it may have members, as far as that was read.
return {}
