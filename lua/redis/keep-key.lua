-- Extends a key's life to at least `ms`. Jobs and programs may share a limit, and need its state for different times.
local function keep_key(key, ms)
  if ms > redis.call('PTTL', key) then redis.call('PEXPIRE', key, ms) end
end

return keep_key
