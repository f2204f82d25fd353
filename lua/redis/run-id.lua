-- The id of this run of Redis. A library lasts no longer than the process, so it reads the id once.
local known

local function run_id()
  known = known or string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
  return known
end

return run_id
