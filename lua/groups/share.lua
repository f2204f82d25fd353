-- How many places of a queue one group may hold (shape.groups.share), by how many are free: a dynamic threshold (Choudhury
-- and Hahne 1998: "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches"). There a queue may hold at most
-- alpha * free, and k that would take more leave capacity / (1 + alpha * k), as long as they drain when others come. A group
-- that is held keeps what it has: of groups that fill up one after the other, each would take half of the rest (alpha 1),
-- and ten would leave 1 place of 1000. So alpha counts for the part of the capacity that the others leave:
--   held < alpha * free * room / capacity, with room = free + held
-- which is held < alpha * room^2 / (capacity + alpha * room): the group's own jobs do not change its bound. Now k groups
-- leave capacity / (1 + alpha * k), in whatever order their jobs come, and one alone may hold what it could there.
local group_share = {}

-- The alpha of a queue; nil if its groups have none. given: the defaults of its groups
function group_share.of_free(given)
  if given.share then return given.share.ofFree end
  return not given.capacity and 1 or nil
end

-- How many jobs a group may hold, if the others leave it so much room. That is rounded up: while a place is free, each group
-- without jobs finds one. Not so a group that is held: it would keep that place, and any number of them all places.
function group_share.most(of_free, capacity, room, is_held)
  if room <= 0 then return 0 end
  local most = of_free * room * room / (capacity + of_free * room)
  return is_held and math.floor(most) or math.ceil(most)
end

-- The least room that lets a group hold so many.
function group_share.room(of_free, capacity, jobs, is_held)
  local most = is_held and jobs or jobs - 1
  local room = math.floor(most / 2 + math.sqrt(most * most / 4 + most * capacity / of_free))
  while group_share.most(of_free, capacity, room, is_held) < jobs do room = room + 1 end
  return room
end

-- Up to this depth no group can hold too many.
function group_share.sure(of_free, capacity)
  return group_share.most(of_free, capacity, capacity, true)
end

return group_share
