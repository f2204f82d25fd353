--[[
  Redis is out of memory: deletes reports, to make room for jobs, and stores when. The last
  changes of the history stay, and the coarsest samples: these are few, and reach back furthest.
  ARGV  none
  Returns nothing.
]]
local as_text = use 'redis/as-text'
local redis_now = use 'redis/redis-now'
local series = use 'reports/series'

local base = string.sub(KEYS[1], 1, -11)
local KEPT = 10
local deleted = redis.call('DEL', base .. 'meta:audit', base .. 'meta:audit:starts')
for i = 1, #series.LEVELS - 1 do deleted = deleted + redis.call('DEL', series.key(base, series.LEVELS[i][1])) end
for _, key in ipairs({ 'meta:history', 'meta:feedback' }) do redis.call('XTRIM', base .. key, 'MAXLEN', KEPT) end
-- Redis refuses commands that need memory only until a script has written.
if deleted > 0 then redis.call('HSET', base .. 'meta:meter', 'shedAt', as_text.us(redis_now())) end
