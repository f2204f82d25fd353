-- Keeps a key for at least that long: jobs and programs may share a limit, and need its state for different times.
local function keep_key(key, ms)
  if ms > redis.call('PTTL', key) then redis.call('PEXPIRE', key, ms) end
end

return keep_key
