local limit_checks = use 'limits/checks'
local limit_control = use 'limits/control'
local keys_in_use = use 'limits/keys-in-use'
local own_values = use 'limits/own-values'
local queue_limits = use 'limits/queue-limits'
local scheduled_bucket = use 'limits/scheduled-bucket'
local limit_state = use 'limits/state'
local warm_up = use 'limits/warm-up'
local as_text = use 'redis/as-text'
local call_state = use 'redis/call-state'
local history = use 'reports/history'
local job_options = use 'shape/job-options'
local parsed = use 'shape/parsed'
local shapes = use 'shape/shapes'

-- The limits of a shape that apply to each value of a key separately (`by`): of the group, of a key that jobs name
-- (`keys` of their options), or of several of them. The state for one value is a cell, like one key of a limit in
-- limits/state, which expires by itself:
--   meta:group:limit:<name>:<algorithm>:<value>
-- The cell of a shared limit is the state of a key of its limiters, named as in src/limits/limit-keys.ts.
-- groups/queue-groups checks them when it chooses a job and charges them when that job departs, if g.limits is set. A
-- job that goes back is charged again, as under the limits of the queue. Jobs without a group are one group, named '';
-- a limit does not apply to a job that lacks another of its keys. Nil for a queue without such limits.
local function group_limits_of(base, shape, now)
  if not shape.keyed_limits then return nil end
  local keyed, known = parsed.keyed(shape), {}
  local limits = { revision = keyed.revision, tiered = keyed.tiered }
  for i, l in ipairs(keyed.all) do
    known[i], l.charges_since = l, nil
    -- Its switch is read in each call.
    if l.shared then
      known[i] = {}
      for field, value in pairs(l) do known[i][field] = value end
    end
  end

  -- The value of a job under a limit: for several keys, each after its length. Nil if it lacks one of them.
  local function value_of(l, group, keys)
    if not l.by[2] then return l.by[1] == 'group' and group or keys and keys[l.by[1]] end
    local values = {}
    for i, name in ipairs(l.by) do
      values[i] = name == 'group' and group or keys and keys[name]
      if not values[i] then return nil end
      values[i] = #values[i] .. ':' .. values[i]
    end
    return table.concat(values)
  end

  -- The keys of a job that a limit counts, name -> value, including 'group' if it does.
  local function keys_of(l, group, keys)
    local found = {}
    for _, name in ipairs(l.by) do found[name] = name == 'group' and group or keys[name] end
    return found
  end

  -- The same value in the form of a limiter's key: text that is long or has other characters is hashed, and several
  -- values are parts of one key. Jobs without a group count as calls without a key.
  local function shared_key(l, group, keys)
    local parts = {}
    for i, name in ipairs(l.by) do
      local value = name == 'group' and group or keys[name]
      if value == '' then parts[i] = '*'
      elseif #value <= 64 and string.find(value, '^[%w_.@-]+$') then parts[i] = value
      else parts[i] = '#' .. string.sub(redis.sha1hex(value), 1, 27) end
    end
    return table.concat(parts, ':')
  end

  -- The form of a value in the key of its state, and in the name of its cell.
  local function key_of(l, group, keys, value)
    return l.shared and shared_key(l, group, keys) or value
  end

  local function prepared(l)
    if not l.control then
      -- A limit that is not shared has no switch.
      local switch = nil
      if not l.shared then switch = false end
      limit_checks.prepare(limit_state.lasting(l, shape.follows), limit_control.of_values(l, base), now, true, switch)
      l.states, l.rate_changes = limit_control.states_of_values(l, base), shape.rate_changes and shape.rate_changes[l.name]
    end
    return l
  end

  -- The limit, which is prepared unless it is shared, as it applies to one value. keys: of a job, or nil
  local function in_force(l, value, keys)
    if l.shared then return prepared(l) end
    if l.plan then return own_values.in_force(base, l, value, nil, now) end
    local tier = keys and keys[':tier']
    if shape.own_limits and shape.own_limits[l.name] then return own_values.in_force(base, l, value, tier, now) end
    return tier and l.tiers and own_values.of_tier(l, tier) or l
  end

  -- The cell of a value: value as value_of returns it, for reports/audit; key: the end of the key of its state
  local function cell_of(i, key, value)
    local l = prepared(known[i])
    return { i = i, key = key, value = value, name = l.name .. ':' .. key, state = l.states .. key }
  end

  -- The cells of a job. lane: as groups/lane-keys has it, nil if that is not known to say all
  local function cells_of(group, keys, lane)
    if lane and lane.cells_of == keyed then return lane.cells end
    local cells = {}
    for i, l in ipairs(known) do
      local value = value_of(l, group, keys)
      if value then cells[#cells + 1] = cell_of(i, key_of(l, group, keys, value), value) end
    end
    if lane then lane.cells, lane.cells_of = cells, keyed end
    return cells
  end

  -- The cells as parts. keys: of a job, or nil
  local function parts_of(cells, keys)
    local parts, states = {}, {}
    for i = 1, #cells do
      local cell = cells[i]
      states[i] = cell.state
      -- With all fields from the beginning, the table never grows.
      parts[i] = {
        l = in_force(known[cell.i], cell.key, keys), value = cell.value, cell = cell.name, offset = 0, blocked = 0, cost = 0,
        slot = 0, taken = 0, s = false, charged = false,
      }
    end
    local packed = states[1] and redis.call('MGET', unpack(states))
    for i = 1, #parts do
      local part, state = parts[i], states[i]
      local l = part.l
      part.s = l.verbs.open(state, l, now, packed[i])
      part.blocked = limit_checks.blocked(l, state, now)
      if l.limited then part.blocked = math.max(part.blocked, l.limited - now) end
      if l.shared then part.shared = { control = l.control, value = cells[i].key } end
    end
    return parts
  end

  -- A job of the value departed under a plan over days. The first one of a day makes its day known to processes that
  -- restore the shape, once a day.
  local function note_warm_up(part, slot)
    local l = part.l
    if slot >= l.day_ends then
      local why, by = own_values.begin_day(base, l, part.value, part.keys, slot, now)
      if by == warm_up.BY and string.find(why, 'again', 1, true) then
        local change = cjson.encode({ limit = l.name, keys = part.keys, day = l.day })
        history.note(base, now, 'limit', warm_up.BY, why, change, '')
      end
      shapes.note_own_values(base .. 'meta:shape', base, l.name, now)
      shapes.note_day(base .. 'meta:shape', now)
    end
    warm_up.note(base, l, part.value, 'started')
  end

  -- A job of the group was refused.
  function limits.note_refused(group)
    for _, l in ipairs(known) do if l.maxRefused then warm_up.note(base, l, group, 'refused') end end
  end

  -- The limits that apply to the job, each with the state of its cell, as in limits/queue-limits. keys: of the job, nil
  -- if it has none; lane: as in cells_of
  function limits.open(group, keys, lane)
    local parts = parts_of(cells_of(group, keys, lane), keys)
    if not keyed.has_plans then return parts end
    for _, part in ipairs(parts) do if part.l.plan then part.keys = keys_of(part.l, group, keys) end end
    return parts
  end

  -- How far ahead a worker is granted slots, and the horizon with which it goes to sleep: queue_limits.reach
  function limits.reach(horizon, lock_ms)
    local shared = {}
    for _, l in ipairs(known) do if l.shared then shared[#shared + 1] = { l = prepared(l) } end end
    if not shared[1] then return horizon, nil end
    return queue_limits.reach(shared, horizon, lock_ms, now)
  end

  -- The names of the cells of a job.
  function limits.cells(group, keys)
    local names = {}
    for i, cell in ipairs(cells_of(group, keys)) do names[i] = cell.name end
    return names
  end

  -- Second, its number.
  local function find(name)
    for i, l in ipairs(known) do if l.name == name then return prepared(l), i end end
  end

  -- The limit of a cell, as it applies to its value; nil if there is none by now.
  function limits.of_cell(cell)
    local name, value = own_values.parts(cell)
    local l = find(name)
    return l and in_force(l, value)
  end

  -- The limit of a cell with settings of its own, and its value and keys; nil if there is none by now.
  function limits.of_value(cell)
    local name, value = own_values.parts(cell)
    local l, stored = find(name), own_values.stored(base, name, value)
    if l and stored and not l.shared then return l, value, stored.keys end
  end

  -- The limit of this name that counts by exactly these keys (name -> value), and their value in the key of its state;
  -- nil if there is none.
  function limits.named(name, keys)
    local count, l, i = 0, find(name)
    for _ in pairs(keys) do count = count + 1 end
    local value = l and count == #l.by and value_of(l, keys.group, keys)
    if value then return l, key_of(l, keys.group, keys, value), i end
  end

  -- The same as a part. tier: of a job, nil for none
  function limits.part_of(name, keys, tier)
    local l, value, i = limits.named(name, keys)
    return l and parts_of({ cell_of(i, value, value) }, { [':tier'] = tier })[1]
  end

  -- Sets fields for a value, as own_values.set does. Returns its settings.
  function limits.set_value(g, l, value, keys, ...)
    local fields = own_values.set(base, l, value, keys, now, ...)
    shapes.note_own_values(base .. 'meta:shape', base, l.name, now)
    return fields
  end

  -- The part of a cell; nil if no limit counts it by now.
  function limits.part_of_cell(cell)
    local name, value = own_values.parts(cell)
    local l, i = find(name)
    return l and parts_of({ cell_of(i, value) })[1]
  end

  -- When the first of the cells that hold jobs gets another limit, by the end of its settings, µs.
  function limits.first_end(g)
    local ending = shape.own_limits and own_values.ending(base, math.huge, own_values.DUE) or {}
    for i = 1, #ending, 2 do
      if g:holds(ending[i], select(2, own_values.parts(ending[i]))) then return tonumber(ending[i + 1]) end
    end
    return math.huge
  end

  -- The keys of a waiting job that the limit of this name counts; nil if it counts none of them.
  function limits.keys_in(name, place)
    local l = find(name)
    return l and value_of(l, place.group, place.keys) and keys_of(l, place.group, place.keys) or nil
  end

  -- How many places of the limit of this name a job takes; 0 if it has none.
  function limits.places_of(name, cost, costs)
    local l = find(name)
    return l.algorithm == 'concurrency' and queue_limits.cost(l, cost, costs) or 0
  end

  -- Calls found(limit, value, its keys) for each limit with `maxKeys` or `onConflict` that applies to a job.
  local function each_bounded(group, keys, found)
    for _, l in ipairs(known) do
      local value = keys_in_use.bounds(l) and value_of(l, group, keys)
      if value then found(prepared(l), value, keys_of(l, group, keys)) end
    end
  end

  -- A job was added: its values are in use from now on. Replaced jobs are noted in call_state. added: the keys of jobs
  -- that it does not replace, to which it is added; nil if there are none
  function limits.note_keys(id, group, keys, added)
    each_bounded(group, keys, function(l, value)
      if not keys_in_use.note(base, l, value, id, now) then return end
      if l.onConflict ~= 'cancel-running' or l.mode ~= 'enforce' or shape.mode ~= 'enforce' then return end
      for _, other in ipairs(keys_in_use.replaced(base, l, value, id, added)) do
        call_state.replaced[base .. other] = { base = base, id = other, limit = l.name, by = id }
      end
    end)
    if added then added[base .. id] = true end
  end

  -- The first new job that would exceed the maximum number of keys of its limit: {limit, keys, most}; or the maximum of
  -- one job per value: {limit, keys, job: the existing one, '' if it is also new}. jobs: {group, keys}, and together:
  -- whether those of one value may wait for each other, as in a flow
  function limits.too_many_keys(jobs)
    local counts, first, seen = {}, nil, {}
    for _, job in ipairs(jobs) do
      each_bounded(job.group, job.keys, function(l, value, keys)
        local cell = l.name .. ':' .. value
        if first or l.mode ~= 'enforce' then return end
        local other = l.onConflict and (seen[cell] and not jobs.together and ''
          or l.onConflict == 'cancel-newest' and keys_in_use.job(base, l, value))
        if other then first = { limit = l.name, keys = keys, job = other } end
        if other or seen[cell] then return end
        seen[cell] = true
        if not l.maxKeys or keys_in_use.has(base, l, value) then return end
        counts[l.name] = (counts[l.name] or 0) + 1
        if keys_in_use.is_full(base, l, counts[l.name], now) then first = { limit = l.name, most = l.maxKeys, keys = keys } end
      end)
    end
    return first
  end

  -- The parts for which a job waits, each with its time (µs, infinite where a job has to end first): the last one first. waits: the
  -- line in which its lane stands, nil if it stands in none
  local function holding(parts, waits)
    local found = {}
    for i, part in ipairs(parts) do
      local own = part.cost > 0 and limit_checks.wait(part) or 0
      local at = own > 0 and now + math.ceil(own) or 0
      local stands = waits and part.cell == waits.cell
      if stands then at = math.max(at, waits.at) end
      if stands or at > 0 then found[#found + 1] = { part = part, at = at, i = i } end
    end
    table.sort(found, function(one, other)
      if one.at ~= other.at then return one.at > other.at end
      return one.i < other.i
    end)
    return found
  end

  -- What holds the first job of a lane: {limit, keys: those whose value is used up, at: until when at least, µs, 0 if that is
  -- not known, places: the key of the state of a cell whose holders have to end, others: as much of other limits that hold it for
  -- less time}. Nil if no limit does. place: as groups.place_in_lane returns it, of any of its jobs
  function limits.hold(g, place)
    local _, job_at = g:lane_order(place.lane)
    local id = g.enforced and job_at(1)
    if not id then return nil end
    local cost, _, costs, _, keys = job_options.cost_of_job(base .. id)
    local parts, holds = limits.open(place.group, keys), {}
    local slot = limits.slot(parts, cost, costs)
    for i, one in ipairs(holding(parts, place.waits)) do
      local l = one.part.l
      local at = i == 1 and math.max(slot, one.at) or one.at
      holds[i] = {
        limit = l.name, keys = keys_of(l, place.group, place.keys), at = at > now and at < math.huge and at or 0,
        places = l.algorithm == 'concurrency' and one.part.s.key or nil, closed = scheduled_bucket.closed(l, now),
      }
    end
    local first = table.remove(holds, 1)
    if first and holds[1] then first.others = holds end
    return first
  end

  -- The earliest slot of a job, µs, 0 for now, infinite if a job has to end first; second, the name of the limit that
  -- it waits for; third, the earliest slot if its places are free by then.
  function limits.slot(parts, cost, costs)
    local wait, _, name = queue_limits.wait(parts, cost, costs)
    if wait < math.huge then wait = queue_limits.open_from(parts, nil, wait) end
    local least = wait
    if wait == math.huge then
      least = 0
      for _, part in ipairs(parts) do
        local own = part.cost > 0 and limit_checks.wait(part) or 0
        if own < math.huge then least = math.max(least, own) end
      end
    end
    return wait > 0 and now + math.ceil(wait) or 0, name, least > 0 and now + math.ceil(least) or 0
  end

  -- Charges the job last passed to limits.slot, which has departed. job_key, lock_ms: of the job; horizon: as in
  -- queue_limits.save; part.taken: the charge, for reports/audit
  function limits.charge(parts, slot, job_key, lock_ms, horizon)
    queue_limits.charge(parts, slot - now, job_key, lock_ms)
    queue_limits.save(parts, base, false, horizon)
    for i = 1, #parts do
      local part = parts[i]
      local l = part.l
      part.taken = part.cost
      if l.counts and part.cost > 0 then note_warm_up(part, slot) end
      if l.is_paced and part.cost > 0 then
        redis.call('HINCRBYFLOAT', base .. 'meta:limits:used', part.cell, as_text.exact(part.cost))
      end
      if keys_in_use.bounds(l) then keys_in_use.note(base, l, part.value, string.sub(job_key, #base + 1), now) end
    end
  end

  -- The limit that holds a group longer than its rate does, as limits.hold has it: in a queue with lanes the one of the lane that
  -- goes first, if all its lanes wait; a time that is not known may be any. Nil if none does.
  function limits.cause(g, group)
    if g.lanes then
      local first
      for _, place in ipairs(g:waits_for_lanes(group) and g:waiting_lanes(group) or {}) do
        local hold = limits.hold(g, place)
        if hold and (not first or hold.at < first.at) then first = hold end
      end
      return first
    end
    local id = g.enforced and (g:head(group) or redis.call('ZRANGE', g:line(group).set, 0, 0)[1])
    if not id then return nil end
    local cost, _, costs, _, keys = job_options.cost_of_job(base .. id)
    local parts = limits.open(group, keys)
    local slot, name = limits.slot(parts, cost, costs)
    local b = group ~= '' and g:bucket(group, g:settings_next(group))
    if slot <= (b and g:slot(b, cost) or 0) then return nil end
    for _, part in ipairs(parts) do
      if part.l.name == name then return { limit = name, closed = scheduled_bucket.closed(part.l, now) } end
    end
  end

  -- The name of the limit that holds the first of the held groups or lanes; nil if none does.
  function limits.of_held(g)
    if g.lanes then return string.match(g:first_waiting() or '', '^[^:]+') end
    local group = redis.call('ZRANGE', g:key('limited'), 0, 0)[1]
    return group and (limits.cause(g, group) or {}).limit
  end

  return limits
end

return group_limits_of
