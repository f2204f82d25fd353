--[[
  Redis is out of memory: deletes what is only kept for people to read, to make room for jobs. The last changes of the
  history stay.
  KEYS
    [1]  …:meta:shape
  ARGV  none
  Returns nothing.
]]
--- @include "lib/series"
local base = string.sub(KEYS[1], 1, -11)
local KEPT = 10
redis.call('DEL', base .. 'meta:audit', base .. 'meta:audit:starts')
for _, level in ipairs(SERIES) do redis.call('DEL', series_key(base, level[1])) end
for _, key in ipairs({ 'meta:history', 'meta:feedback' }) do redis.call('XTRIM', base .. key, 'MAXLEN', KEPT) end
