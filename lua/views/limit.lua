local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local own_values = use 'limits/own-values'
local queue_limits = use 'limits/queue-limits'
local scheduled_bucket = use 'limits/scheduled-bucket'
local as_text = use 'redis/as-text'
local job_options = use 'shape/job-options'
local holders = use 'views/holders'

-- The remaining units of a limit with `by` for one value of its keys, or of a pool for a member. Times as in
-- views/queue.
local view_limit = {
  -- At most this many random values that lanes wait for are read, and at most this many running jobs.
  SAMPLE = 100,
}

-- What is left, in use and when more is, unless the value has no limit; when its schedule opens, if that is closed, and of a plan
-- its day.
local function note_use(view, part)
  local l = part.l
  if l.plan then view.day, view.days = l.day, #l.plan end
  if l.mode == 'off' then return view end
  local closed = scheduled_bucket.closed(l, part.s.now)
  view.opens = closed and closed.ends or nil
  local left, reset = l.verbs.view(part.s, l)
  local wait = math.max(l.verbs.earliest(part.s, l, 1), part.blocked)
  -- The time when a place comes back is unknown.
  view.left, view.wait = as_text.exact(left), wait < math.huge and as_text.us(math.ceil(wait)) or nil
  view.reset = as_text.us(math.ceil(reset))
  view.most = l.burst or l.limit
  view.used = as_text.exact(math.max(0, view.most - left))
  return view
end

-- Nil if the queue has no such limit. keys: name -> value; tier: of a job that asks, nil for none. Second, its part.
function view_limit.of_one(q, name, keys, tier)
  local limits = q.shape and group_limits_of(q.base, q.shape, q.now)
  local part = limits and limits.part_of(name, keys, tier)
    or q.shape and queue_limits.member(q.shape, q.base, q.now, name, keys)
  if not part then return nil end
  local stored = own_values.stored(q.base, name, part.value)
  local fields, l = stored and stored.fields or {}, part.l
  -- The day that comes with the next departure.
  if fields.day and l.day_ends == 0 then fields.day.value, fields.day.reason, fields.day.by = l.day, l.why, l.day_by end
  return note_use({
    at = as_text.us(q.now), fields = fields,
    lanes = part.cell and redis.call('ZCARD', q.base .. 'meta:line:' .. part.cell) or 0,
  }, part), part
end

-- The same, with the limits as stored, the ids of the first jobs that wait for it, at most `count`, and the holders of
-- its places, if it has some. For a lane that is its first job; without lanes the jobs of the group.
function view_limit.in_detail(q, name, keys, count)
  local view, part = view_limit.of_one(q, name, keys)
  if not view then return nil end
  local g = queue_groups.open(q.base, q.shape, q.now)
  view.limits, view.jobs = part.member and q.shape.limits or q.shape.keyed_limits, {}
  view.holders = part.l.algorithm == 'concurrency' and holders.of_places(q, part.s.key) or {}
  if count == 0 or part.member then return view end
  if not g.lanes then view.jobs = redis.call('ZRANGE', q.base .. 'meta:group:jobs:' .. keys.group, 0, count - 1) end
  for _, lane in ipairs(g.lanes and redis.call('ZRANGE', q.base .. 'meta:line:' .. part.cell, 0, count - 1) or {}) do
    view.jobs[#view.jobs + 1] = select(2, g:lane_order(lane))(1)
  end
  return view
end

-- All settings of values of limits, as stored.
function view_limit.settings(q)
  local own = {}
  for name in pairs(q.shape and q.shape.own_limits or {}) do
    local found = redis.call('HVALS', q.base .. 'meta:limits:own:' .. name)
    for _, text in ipairs(found) do own[#own + 1] = { name, text } end
  end
  return { at = as_text.us(q.now), own = own }
end

-- The cells that lanes wait for, those of most lanes first, or some random ones: {cell, lanes}. Second, how many there
-- are.
local function awaited(q)
  local key, found = q.base .. 'meta:lines', {}
  local count = redis.call('HLEN', key)
  local cells = count <= view_limit.SAMPLE and redis.call('HKEYS', key) or redis.call('HRANDFIELD', key, view_limit.SAMPLE)
  for i, cell in ipairs(cells) do found[i] = { cell = cell, lanes = redis.call('ZCARD', q.base .. 'meta:line:' .. cell) } end
  table.sort(found, function(one, other)
    if one.lanes ~= other.lanes then return one.lanes > other.lanes end
    return one.cell < other.cell
  end)
  return found, count
end

-- The cells of the running jobs, those of most jobs first: {cell, name of the limit, place: as keys_in takes it, jobs,
-- places: how many these take}. Second, the share of the running jobs that was read. Groups without lanes do not wait
-- in lines: for such a queue the first waiting jobs are read, too.
local function taken(q, limits)
  local found, of_cell = {}, {}
  local function look(id, runs)
    local options = redis.call('HGET', q.base .. id, 'opts')
    local cost, costs, _, keys = job_options.cost(options)
    local place = { group = queue_groups.named(options) or '', keys = keys }
    for _, cell in ipairs(options and limits.cells(place.group, keys) or {}) do
      local one, name = of_cell[cell], own_values.parts(cell)
      if not one then
        one = { cell = cell, name = name, place = place, jobs = 0, places = 0 }
        of_cell[cell], found[#found + 1] = one, one
      end
      one.jobs = one.jobs + 1
      if runs then one.places = one.places + limits.places_of(name, cost, costs) end
    end
  end
  local running = redis.call('LRANGE', q.base .. 'active', 0, view_limit.SAMPLE - 1)
  for _, id in ipairs(running) do look(id, true) end
  if not q.shape.lanes then
    for _, id in ipairs(redis.call('ZRANGE', q.base .. 'prioritized', 0, view_limit.SAMPLE - 1)) do look(id, false) end
  end
  table.sort(found, function(one, other)
    if one.jobs ~= other.jobs then return one.jobs > other.jobs end
    return one.cell < other.cell
  end)
  return found, #running / math.max(1, redis.call('LLEN', q.base .. 'active'))
end

local function members_of(q, count)
  local rows = {}
  for _, part in ipairs(q.shape and q.shape.pools and queue_limits.open(q.shape, q.base, q.now) or {}) do
    for _, one in ipairs(part.l.pool and queue_limits.states(part) or {}) do
      if #rows < count then
        rows[#rows + 1] = note_use({ limit = part.l.name, keys = { member = one.member }, lanes = 0 }, one)
      end
    end
  end
  return rows
end

-- The values of limits for which most lanes wait, at most `count`, then as many others with the most running jobs; how
-- many values lanes wait for; and for the values without a row, how many lanes wait for them, and how many of their
-- places this queue's running jobs take, extrapolated from the values that were read. Finally the members of pools, at
-- most `count`. Nil for a queue without limits by keys and pools.
function view_limit.of_values(q, count)
  local limits, members = q.shape and group_limits_of(q.base, q.shape, q.now), members_of(q, count)
  if not limits then
    return members[1] and { at = as_text.us(q.now), rows = members, values = 0, others = 0, places = 0 } or nil
  end
  local g, rows, shown = queue_groups.open(q.base, q.shape, q.now), {}, {}
  local function show(cell, name, place, lanes)
    local keys = place and limits.keys_in(name, place)
    local part = keys and limits.part_of(name, keys, (place.keys or {})[':tier'])
    if not part then return end
    rows[#rows + 1] = note_use({ limit = name, keys = keys, lanes = lanes }, part)
    shown[cell] = true
  end
  local lines, values = awaited(q)
  local lanes_of, lanes, places = {}, 0, 0
  for i, line in ipairs(lines) do
    lanes_of[line.cell] = line.lanes
    local lane = i <= count and redis.call('ZRANGE', q.base .. 'meta:line:' .. line.cell, 0, 0)[1]
    local job = lane and select(2, g:lane_order(lane))(1)
    show(line.cell, own_values.parts(line.cell), job and g:place_in_lane(job), line.lanes)
  end
  local awaited_rows = #rows
  local cells, share = taken(q, limits)
  for _, one in ipairs(cells) do
    if #rows - awaited_rows < count and not shown[one.cell] then show(one.cell, one.name, one.place, lanes_of[one.cell] or 0) end
  end
  for _, line in ipairs(lines) do if not shown[line.cell] then lanes = lanes + line.lanes end end
  for _, one in ipairs(cells) do if not shown[one.cell] then places = places + one.places end end
  if values > #lines then lanes = math.floor(lanes * (values - awaited_rows) / math.max(1, #lines - awaited_rows)) end
  places = places > 0 and math.floor(places / share + 0.5) or 0
  for _, row in ipairs(members) do rows[#rows + 1] = row end
  return { at = as_text.us(q.now), rows = rows, values = values, others = lanes, places = places }
end

return view_limit
