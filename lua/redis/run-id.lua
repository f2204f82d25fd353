-- The id of this run of Redis, which a library learns once: it lasts no longer than the process.
local known

local function run_id()
  known = known or string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
  return known
end

return run_id
