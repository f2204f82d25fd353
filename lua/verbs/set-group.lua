--[[
  Sets fields of one group at run time, or lifts what was set: then the defaults of the shape apply again.
  ARGV
    [1]  the group
    [2]  JSON: field -> value, null for "no limit", {"clear": true} to lift the field. The fields paused and
         limited (which needs an end) are true
    [3]  who
    [4]  why
    [5]  how long, ms, or '' until it is lifted
    [6]  '1' to lift all other fields first
    [7]  'id:revision' of the shape that the caller knows, '' if none
    [8]  when the call was first sent, µs, if it may have run already
  Returns {1, JSON of what is set for the group now}; {-1} if Redis has lost what the caller knows; {-7} if the queue has
  no groups.
]]
local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local group_settings = use 'groups/settings'
local redis_now = use 'redis/redis-now'
local history = use 'reports/history'
local shapes = use 'shape/shapes'

local key, base, group = KEYS[1], string.sub(KEYS[1], 1, -11), ARGV[1]
local now = redis_now()
local shape = shapes.load(key, base, now)
if shapes.is_lost(shape, ARGV[7]) then return { -1 } end
if not shape or not shape.groups then return { -7 } end
local g = queue_groups.open(base, shape, now)
local until_ms = ARGV[5] ~= '' and math.floor(now / 1000) + math.ceil(tonumber(ARGV[5])) or nil
local change = cjson.decode(ARGV[2])

local function made_before()
  local noted = cjson.decode(ARGV[2])
  noted.group = group
  return history.made(base, ARGV[8], 'group', ARGV[3], ARGV[4], cjson.encode(noted), ARGV[5])
end

if ARGV[8] and made_before() then
  local fields = group_settings.stored(g, group).fields
  return { 1, next(fields) and cjson.encode(fields) or '{}' }
end
local fields = group_settings.set(g, group, change, ARGV[3], ARGV[4], until_ms, ARGV[6] == '1')
g:save()
wake.head_changed(base, g)
change.group = group
history.note(base, now, 'group', ARGV[3], ARGV[4], cjson.encode(change), until_ms or '')
return { 1, next(fields) and cjson.encode(fields) or '{}' }
