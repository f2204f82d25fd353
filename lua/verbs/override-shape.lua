--[[
  Overrides fields of the shape at run time, or lifts overrides: declared values stay, and apply again afterwards.
  ARGV
    [1]  JSON: field -> value, null for "no limit", {"clear": true} to lift the override of that field
    [2]  who
    [3]  why
    [4]  how long, ms, or '' until it is cleared
    [5]  '1' to lift all other overrides first
    [6]  'id:revision' of the shape that the caller knows, '' if none
    [7]  when the call was first sent, µs, if it may have run already
  Returns {1, the shape}; {-1} if Redis has lost what the caller knows; {1, {}} if there is nothing to lift; {-5, {name,
  given, stored}} if the name of a shared limit has another definition; {-9} if a limit per group would have no groups.
]]
local redis_now = use 'redis/redis-now'
local history = use 'reports/history'
local parsed = use 'shape/parsed'
local shapes = use 'shape/shapes'

-- The coming value of a field: the given one, an earlier override, or the declared one.
local function future(field, given, declared, overrides)
  local value = given[field]
  if type(value) == 'table' and value.clear then value = nil
  elseif value == nil and ARGV[5] ~= '1' and overrides[field] then value = overrides[field].value end
  if value == nil and declared[field] then value = declared[field].value end
  return value ~= cjson.null and value or nil
end

local key, base = KEYS[1], string.sub(KEYS[1], 1, -11)
local now = redis_now()
if ARGV[5] == '1' and ARGV[6] == '' and redis.call('EXISTS', key) == 0 then return { 1, {} } end
local fields = cjson.decode(ARGV[1])
if fields.limits ~= nil or fields.groups ~= nil then
  local declared, overrides = shapes.documents(key)
  local limits, groups = future('limits', fields, declared, overrides), future('groups', fields, declared, overrides)
  -- A loss comes first: then the shape has to be restored.
  local keyed = limits and string.find(limits, parsed.KEYED_LIMIT, 1, true)
  local lacks_groups = keyed and not groups and not select(2, parsed.lanes_of(limits))
  if lacks_groups and not shapes.is_lost(shapes.read(key), ARGV[6]) then return { -9 } end
end
local conflict = shapes.define_limits(base, fields.limits, ARGV[2])
if conflict then return conflict end
local declared, overrides = shapes.begin(key, base, now, ARGV[6])
if not declared then return { -1 } end
local now_ms = math.floor(now / 1000)
if ARGV[5] == '1' then overrides = {} end
local until_ms = ARGV[4] ~= '' and now_ms + math.ceil(tonumber(ARGV[4])) or nil
local set = {}
for field, value in pairs(fields) do
  if type(value) == 'table' and value.clear then
    overrides[field] = nil
  else
    local entry = { value = value, by = ARGV[2], reason = ARGV[3], at = now_ms }
    entry['until'] = until_ms
    overrides[field], set[field] = entry, value
  end
end
local lifts = next(set) == nil
local kind, change = lifts and 'cleared' or 'override', lifts and ARGV[1] or cjson.encode(set)
if history.made(base, ARGV[7], kind, ARGV[2], ARGV[3], change, ARGV[4]) then return { 1, redis.call('HGETALL', key) } end
shapes.resolve(key, base, declared, overrides, now)
history.note(base, now, kind, ARGV[2], ARGV[3], change, until_ms or '')
return shapes.finish(key, base, now)
