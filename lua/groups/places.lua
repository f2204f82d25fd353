local concurrency = use 'limits/concurrency'
local queue_limits = use 'limits/queue-limits'
local job_options = use 'shape/job-options'

-- The places of limits on running jobs for each value of a key (`concurrency` with `by`). A place is a lease in the
-- state of a cell (limits/concurrency), named by the key of its job. A job's places are recorded by its id, because its
-- hash may be gone once it ends: however that happens, it leaves the running jobs, and gives its places back. Places of
-- a job that has lost its lock are free, too, at the next check. Adds these functions to the table of
-- groups/queue-groups.
--   meta:lanes:places  hash, running job -> its places, packed: {cell, key of its state, n, shared: as in
--                      limits/turns} each
local function group_places(groups)
  local function held_key(g)
    return g.base .. 'meta:lanes:places'
  end

  -- The places among a job's charges; nil if there are none.
  local function places_in(parts)
    local places
    for _, part in ipairs(parts) do
      if part.l.algorithm == 'concurrency' and part.charged then
        places = places or {}
        places[#places + 1] = { cell = part.cell, key = part.s.key, n = part.cost, shared = part.shared }
      end
    end
    return places
  end

  -- A job has departed, and was charged these parts. Stored by groups.save
  function groups.take_places(g, id, parts)
    local places = g.has_places and places_in(parts)
    if not places then return end
    local taken = g.places_taken
    taken[#taken + 1], taken[#taken + 2] = id, cmsgpack.pack(places)
  end

  -- Reads the places of jobs that end in this call together.
  function groups.expect_places(g, ids)
    if not g.has_places then return end
    g.places_of = {}
    local function held(...) return redis.call('HMGET', held_key(g), ...) end
    groups.read_each(ids, held, function(id, packed) g.places_of[id] = packed end)
  end

  -- A job no longer runs. Returns whether a lane may go instead.
  function groups.give_places(g, id)
    if not g.has_places then return false end
    local packed = g.places_of and g.places_of[id]
    if packed == nil then packed = redis.call('HGET', held_key(g), id) end
    if not packed then return false end
    local freed = false
    if g.together then g.places_ended[#g.places_ended + 1] = id else redis.call('HDEL', held_key(g), id) end
    for _, place in ipairs(cmsgpack.unpack(packed)) do
      concurrency.give_back(place.key, g.base .. id, place.n)
      freed = groups.place_freed(g, place.cell, place.shared) or freed
    end
    return freed
  end

  function groups.save_places(g)
    local taken, ended = g.places_taken, g.places_ended
    g.places_taken, g.places_ended = {}, {}
    groups.in_parts(ended, function(...) redis.call('HDEL', held_key(g), ...) end)
    groups.in_parts(taken, function(...) redis.call('HSET', held_key(g), ...) end)
  end

  -- The running jobs departed under other limits, or none that were enforced: they take their places now.
  function groups.track_places(g)
    redis.call('DEL', held_key(g))
    if not (g.has_places and g.enforced and g.limits) then return end
    for _, id in ipairs(redis.call('LRANGE', g.base .. 'active', 0, -1)) do
      local group = groups.of_job(g.base, id) or ''
      local cost, _, costs, _, keys = job_options.cost_of_job(g.base .. id)
      local parts = {}
      for _, part in ipairs(g.limits.open(group, keys)) do
        if part.l.algorithm == 'concurrency' then parts[#parts + 1] = part end
      end
      for _, part in ipairs(parts) do part.cost = queue_limits.cost(part.l, cost, costs) end
      queue_limits.charge(parts, 0, g.base .. id, g.lock_ms)
      queue_limits.save(parts, g.base, false)
      local places = places_in(parts)
      if places then redis.call('HSET', held_key(g), id, cmsgpack.pack(places)) end
    end
  end
end

return group_places
