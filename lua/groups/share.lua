local occupancy = use 'admission/occupancy'

-- How many places of a queue one group may hold (shape.groups.share), by the number of free places: a dynamic threshold
-- (Choudhury and Hahne 1998: "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches"). There a queue may
-- hold at most alpha * free, and k greedy queues leave capacity / (1 + alpha * k), as long as they drain when others
-- come. A held group does not drain: if groups fill up one after the other, each would take half of the rest (alpha 1),
-- and ten would leave 1 place of 1000. So alpha counts for the part of the capacity that the others leave:
--   held < alpha * free * room / capacity, with room = free + held
-- which is held < alpha * room^2 / (capacity + alpha * room): the group's own jobs do not change its bound. Now k
-- groups leave capacity / (1 + alpha * k), in whatever order their jobs come, and a single one may hold the same as
-- there.
local group_share = {}

-- The alpha of a queue; nil if its groups have none. given: the defaults of its groups
function group_share.of_free(given)
  if given.share then return given.share.ofFree end
  return not given.capacity and 1 or nil
end

-- How many jobs a group may hold, if the others leave it this much room. Rounded up: while a place is free, each group
-- without jobs finds one. Not for a held group: it would keep that place, and any number of them all places.
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

-- The places of the queue for the new jobs of one call. total: how many these are; drops: whether waiting jobs may be
-- dropped for them
function group_share.call(g, shape, total, drops)
  local call = { total = total, kept = 0, of_free = shape.capacity and group_share.of_free(g.given) or nil }
  if not call.of_free then return call end
  call.capacity = occupancy.limit(shape, 0)
  call.depth = occupancy.taken(g.base, shape, g.now)
  call.is_sure = call.depth + total <= group_share.sure(call.of_free, call.capacity)
  call.drops = drops and shape.mode == 'enforce' and (shape.overflow or 'reject') ~= 'reject'
  return call
end

-- The bound of a group in a call that adds `count` of its jobs: own, by a capacity of its own; most(held), also by the
-- free places. largest: the most that it could ever hold.
function group_share.bound(g, call, group, count)
  local s = g:settings(group)
  local bound, is_held = { own = s.capacity or math.huge }, (s.paused or s.limited) and true or false
  -- Jobs of the call come first. The number of those that replace others does not matter.
  local of_free, others = call.of_free, call.drops and call.kept or call.total - count
  local function room(held) return call.capacity - (call.depth - held) - others end
  function bound.most(held)
    if not of_free then return bound.own end
    return math.min(bound.own, group_share.most(of_free, call.capacity, room(held), is_held))
  end
  -- How many jobs of others have to leave, so that a group that holds `held` may hold so many.
  function bound.lacks(held, jobs)
    return of_free and math.max(0, group_share.room(of_free, call.capacity, jobs, is_held) - room(held)) or 0
  end
  bound.largest = math.min(bound.own, of_free and group_share.most(of_free, call.capacity, call.capacity) or math.huge)
  return bound
end

-- Whether groups may refuse one of these jobs: by bounds of their own, by the free places, or for its cost. names: of
-- their groups; cost: the highest of them; capacity, depth: of the queue with these jobs, nil if a bound does not
-- follow from the free places
function group_share.may_refuse(g, names, cost, capacity, depth)
  local of_free = group_share.of_free(g.given)
  if not of_free or (capacity and depth > group_share.sure(of_free, capacity)) then return true end
  for _, group in ipairs(names) do
    local s = g:settings(group)
    if s.capacity or (s.has_rate and cost > s.burst) then return true end
  end
  return false
end

return group_share
