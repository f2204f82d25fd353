local occupancy = use 'admission/occupancy'
local group_share = use 'groups/share'

-- How many places a group may hold.

local group_places = {}

-- The places of the queue for the new jobs of one call. total: how many these are; drops: whether waiting jobs may be
-- dropped for them
function group_places.call(g, shape, total, drops)
  local call = { total = total, kept = 0, of_free = shape.capacity and group_share.of_free(g.given) or nil }
  if not call.of_free then return call end
  call.capacity = occupancy.limit(shape, 0)
  call.depth = occupancy.depth(g.base, shape, g.now) + occupancy.claimed(shape, g.now)
  call.is_sure = call.depth + total <= group_share.sure(call.of_free, call.capacity)
  call.drops = drops and shape.mode == 'enforce' and (shape.overflow or 'reject') ~= 'reject'
  return call
end

-- How a group is bounded in a call that adds so many of its jobs: own, by a capacity of its own; most(held), also by what is
-- free. largest: the most that it could ever hold.
function group_places.bound(g, call, group, count)
  local s = g:settings(group)
  local bound, is_held = { own = s.capacity or math.huge }, (s.paused or s.limited) and true or false
  -- Jobs of the call come first. Of those that replace others it does not matter how many.
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

return group_places
