--[[
  Sets fields of one group at run time, or lifts them: then the defaults of the shape apply again.
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
  Returns {1, JSON of the group's own fields now}; {-1} if Redis has lost what the caller knows; {-7} if the queue has
  no groups.
]]
local wake = use 'gate/wake'
local queue_groups = use 'groups/queue-groups'
local group_settings = use 'groups/settings'
local history = use 'reports/history'
local parsed = use 'shape/parsed'
local shapes = use 'shape/shapes'

local group, base, now, shape = ARGV[1], shapes.here(KEYS[1])
if shapes.is_lost(shape, ARGV[7]) then return { -1 } end
if not shape or not shape.groups then return { -7 } end
local g = queue_groups.open(base, shape, now)
local until_ms = ARGV[5] ~= '' and math.floor(now / 1000) + math.ceil(tonumber(ARGV[5])) or nil
local noted = cjson.decode(ARGV[2])
noted.group = group
noted = cjson.encode(noted)
if parsed.needs_whole_groups(ARGV[2]) and not shape.whole_groups then
  redis.call('HSET', KEYS[1], 'wholeGroups', 1)
  shapes.revise(KEYS[1], 0)
  g.strict = true
end
local fields
if history.made(base, ARGV[8], 'group', ARGV[3], ARGV[4], noted, ARGV[5]) then
  fields = group_settings.stored(g, group).fields
else
  fields = group_settings.set(g, group, cjson.decode(ARGV[2]), ARGV[3], ARGV[4], until_ms, ARGV[6] == '1')
  if string.find(ARGV[2], '%%"') then
    -- From now on, the places of groups depend on those of the queue.
    g.places_seen = g.places_seen or '0'
    g:apply_places()
  end
  g:save()
  wake.head_changed(base, g)
  history.note(base, now, 'group', ARGV[3], ARGV[4], noted, until_ms or '')
end
return { 1, shapes.encode(fields) }
