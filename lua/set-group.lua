--[[
  Sets fields of one group at run time, or lifts what was set: then the defaults of the shape apply again.
  KEYS
    [1]  …:meta:shape
  ARGV
    [1]  the group
    [2]  JSON: field -> value, null for "no limit", {"clear": true} to lift the field. The fields paused and
         limited (which needs an end) are true
    [3]  who
    [4]  why
    [5]  how long, ms, or '' until it is lifted
    [6]  '1' to lift all other fields first
    [7]  id of the shape that the caller knows, '' if none
    [8]  its revision
  Returns {1, JSON of what is set for the group now}; {-1} if Redis has lost what the caller knows; {-7} if the queue has
  no groups.
]]
--- @include "lib/clock"
--- @include "lib/groups"
--- @include "lib/group-wake"
--- @include "lib/history"
--- @include "lib/unrefused"
local key, base, group = KEYS[1], string.sub(KEYS[1], 1, -11), ARGV[1]
local now = redis_now()
begin_unrefused(key)
local shape = shape_load(key, base, now)
if shape_lost(shape, ARGV[7], ARGV[8]) then return { -1 } end
if not shape or not shape.groups then return { -7 } end
local g = groups_library().open(base, shape, now)
local now_ms = math.floor(now / 1000)

-- The bucket takes over what applied until now.
local function apply()
  local b = g:bucket(group, g:settings(group))
  if b then g:keep_bucket(group, b) end
end

apply()
local text = redis.call('HGET', g:key('settings'), group)
local own = text and cjson.decode(text) or { fields = {} }
for field, entry in pairs(own.fields) do
  if ARGV[6] == '1' or (entry['until'] and entry['until'] <= now_ms) then own.fields[field] = nil end
end
local until_ms = ARGV[5] ~= '' and now_ms + math.ceil(tonumber(ARGV[5])) or nil
local change = cjson.decode(ARGV[2])
for field, value in pairs(change) do
  if type(value) == 'table' and value.clear then
    own.fields[field] = nil
  else
    local entry, before = { value = value, by = ARGV[3], reason = ARGV[4], at = now_ms }, own.fields[field]
    entry['until'] = until_ms
    -- A worker that limits a group never ends a longer hold.
    local longer = field == 'limited' and before and before['until'] > until_ms
    own.fields[field] = longer and before or entry
  end
end
own.at = us_text(now)
if next(own.fields) == nil then
  redis.call('HDEL', g:key('settings'), group)
else
  redis.call('HSET', g:key('settings'), group, cjson.encode(own))
end
g.has_settings, g.known = true, {}
apply()
if g:settings(group).concurrency and not g.tracked then g:track() end
for _, state in ipairs({ 'limited', 'full', 'paused', 'stale' }) do g:release(group, state) end
g:save()
if g.awaited then group_wake(base) end
change.group = group
history.note(base, now, 'group', ARGV[3], ARGV[4], cjson.encode(change), until_ms or '')
return { 1, next(own.fields) and cjson.encode(own.fields) or '{}' }
