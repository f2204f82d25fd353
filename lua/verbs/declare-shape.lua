--[[
  Stores the declaration of one process, field by field, and only where it differs from the last declaration. A field
  declared with a version is never overwritten by a lower version or by a declaration without one.
  ARGV
    [1]  JSON: field -> value
    [2]  version, an integer, or ''
    [3]  the declarer: host and process id
  Returns {1, the shape}; {-5, {name, given, stored}} if the name of a shared limit is in use for another one.
]]
local redis_now = use 'redis/redis-now'
local history = use 'reports/history'
local shapes = use 'shape/shapes'

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now, version = redis_now(), tonumber(ARGV[2])
local fields = cjson.decode(ARGV[1])
local conflict = shapes.define_limits(base, fields.limits, ARGV[3])
if conflict then return conflict end
local fresh = redis.call('EXISTS', key) == 0
local declared, overrides = shapes.begin(key, base, now, '')
local changed, news = fresh, {}

local function same(one, other)
  if type(one) == 'table' and type(other) == 'table' then return cjson.encode(one) == cjson.encode(other) end
  return one == other
end

for field, value in pairs(fields) do
  local stored = declared[field]
  local outranked = stored and stored.version and (not version or version < stored.version)
  if not outranked and not (stored and same(stored.value, value) and stored.version == version) then
    -- A change of the version alone counts too: a process that restores the shape after a loss must know it.
    changed, news[field] = true, value
    declared[field] = { value = value, version = version, by = ARGV[3] }
    redis.call('HSET', key, 'declared', shapes.encode(declared))
  end
end
if not changed then return { 1, redis.call('HGETALL', key) } end
shapes.resolve(key, base, declared, overrides, now)
history.note(base, now, 'declared', ARGV[3], '', shapes.encode(news), '')
return shapes.finish(key, base, now)
