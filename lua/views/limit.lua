local group_limits_of = use 'groups/limits-of'
local own_values = use 'limits/own-values'
local as_text = use 'redis/as-text'

-- What a limit with `by` has left for one value of its keys, as people see it. Times as in views/queue.
local view_limit = {}

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

return view_limit
