local group_limits_of = use 'groups/limits-of'
local queue_groups = use 'groups/queue-groups'
local own_values = use 'limits/own-values'
local as_text = use 'redis/as-text'

-- What a limit with `by` has left for one value of its keys, as people see it. Times as in views/queue.
local view_limit = {
  -- Of more values that lanes wait for, so many by chance are looked at.
  SAMPLE = 100,
}

-- Nil if the queue has no such limit. keys: name -> value; tier: of a job that asks, nil for none
function view_limit.of_one(q, name, keys, tier)
  local limits = q.shape and group_limits_of(q.base, q.shape, q.now)
  local part = limits and limits.part_of(name, keys, tier)
  if not part then return nil end
  local l, stored = part.l, own_values.stored(q.base, name, part.value)
  local view = {
    at = as_text.us(q.now), fields = stored and stored.fields or {}, lanes = redis.call('ZCARD', q.base .. 'meta:line:' .. part.cell),
  }
  if l.mode == 'off' then return view end
  view.most = l.burst or l.limit
  local left, reset = l.verbs.view(part.s, l)
  local wait = l.verbs.earliest(part.s, l, 1)
  -- When a place comes back is not known.
  view.left, view.wait = as_text.exact(left), wait < math.huge and as_text.us(math.ceil(wait)) or nil
  view.reset = as_text.us(math.ceil(reset))
  return view
end

-- All that is set for values of limits, as stored.
function view_limit.settings(q)
  local own = {}
  for name in pairs(q.shape and q.shape.own_limits or {}) do
    local found = redis.call('HVALS', q.base .. 'meta:limits:own:' .. name)
    for _, text in ipairs(found) do own[#own + 1] = { name, text } end
  end
  return { at = as_text.us(q.now), own = own }
end

-- The values of limits for which most lanes wait, at most `count`; how many values lanes wait for, and how many places lanes
-- have in the lines of all others: of more than SAMPLE values, these are taken to be like those that were looked at. Nil for
-- a queue without limits by keys.
function view_limit.of_values(q, count)
  local limits = q.shape and group_limits_of(q.base, q.shape, q.now)
  if not limits then return nil end
  local key, found, all = q.base .. 'meta:lines', {}, 0
  local values = redis.call('HLEN', key)
  local cells = values <= view_limit.SAMPLE and redis.call('HKEYS', key) or redis.call('HRANDFIELD', key, view_limit.SAMPLE)
  for i, cell in ipairs(cells) do
    found[i] = { cell = cell, lanes = redis.call('ZCARD', q.base .. 'meta:line:' .. cell) }
    all = all + found[i].lanes
  end
  table.sort(found, function(one, other)
    if one.lanes ~= other.lanes then return one.lanes > other.lanes end
    return one.cell < other.cell
  end)
  local g, rows, shown = queue_groups.open(q.base, q.shape, q.now), {}, 0
  for i = 1, math.min(count, #found) do
    local lane = redis.call('ZRANGE', q.base .. 'meta:line:' .. found[i].cell, 0, 0)[1]
    local job = lane and select(2, g:lane_order(lane))(1)
    local name = own_values.parts(found[i].cell)
    local place = job and g:place_in_lane(job)
    local keys = place and limits.keys_in(name, place)
    if keys then
      rows[#rows + 1], shown = { limit = name, keys = keys, lanes = found[i].lanes }, shown + found[i].lanes
    end
  end
  local others = all - shown
  if values > #found then others = math.floor(others * (values - #rows) / math.max(1, #found - #rows)) end
  return { at = as_text.us(q.now), rows = rows, values = values, others = others }
end

return view_limit
