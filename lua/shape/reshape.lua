local limit_control = use 'limits/control'
local meter = use 'meter/meter'
local as_text = use 'redis/as-text'
local shapes = use 'shape/shapes'

-- Shared by the scripts that change a shape.

local reshape = {}

-- Ensures that a shape is stored; the first one gets its id now. Returns what was declared and overridden, or nothing if
-- Redis has lost the shape that the caller knows: it must be restored before it is changed. An expired override ends at
-- its time, not with the change that comes after it.
function reshape.begin(key, base, now, identity)
  if shapes.is_lost(shapes.load(key, base, now), identity) then return nil end
  redis.call('HSETNX', key, 'born', as_text.us(now))
  redis.call('HSETNX', key, 'rev', 0)
  return shapes.documents(key)
end

-- Nil if the shared limits given to a shape agree with the definitions of their names, else the reply: {-5, {name, what
-- was given, what is stored}}. limits: JSON, or nil.
function reshape.define_limits(base, limits, by)
  local shared = {}
  for _, l in ipairs(type(limits) == 'string' and cjson.decode(limits) or {}) do
    if l.shared then shared[#shared + 1] = l end
  end
  for _, l in ipairs(shared) do
    local stored, _, outranks = limit_control.defined(limit_control.of_queue(l, base), l.definition, l.version)
    if not outranks and stored ~= l.definition then return { -5, { l.name, l.definition, stored } } end
  end
  for _, l in ipairs(shared) do limit_control.define(limit_control.of_queue(l, base), l.definition, l.version, by) end
  return nil
end

-- Applies the change to the bucket at the moment it was made, wakes sleeping workers, and returns the whole shape.
function reshape.finish(key, base, now)
  local shape = shapes.load(key, base, now)
  if shape.interval and redis.call('HEXISTS', base .. 'meta:meter', 'bucket') == 1 then
    local m = meter.open(base .. 'meta:meter', now, shape, '')
    if m.changed then meter.save(base .. 'meta:meter', m) end
  end
  redis.call('PUBLISH', base .. 'meta:wake', shape.revision)
  return { 1, redis.call('HGETALL', key) }
end

return reshape
