--[[
  Sets the mode of a limit for all its users, at once; for a spread limit, for the users of one part.
  KEYS
    [1]  the control hash of the limit, or of a part of it
  ARGV
    [1]  'enforce', 'shadow', 'off', or '' for the mode declared in code
    [2]  for a part: when it was set for the limit (µs), else ''. Nothing is done if a later one is stored
  Returns {when it was set (µs), 1 if the name belongs to a spread limit, else 0}.
]]
local limit_control = use 'limits/control'
local turns = use 'limits/turns'
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'

local definition, stored = unpack(redis.call('HMGET', KEYS[1], 'definition', 'modeAt'))
local spread, last, at = limit_control.is_spread(definition) and 1 or 0, tonumber(stored or 0), tonumber(ARGV[2])
if at and at < last then return { last, spread } end
at = at or math.max(redis_now(), last + 1)
limit_control.write(KEYS[1], { mode = ARGV[1] == '' and '-' or ARGV[1] })
redis.call('HSET', KEYS[1], 'modeAt', as_text.us(at))
turns.changed(KEYS[1])
return { at, spread }
