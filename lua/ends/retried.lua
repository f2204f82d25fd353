-- BullMQ's retryJob puts a job back once per lock token: if its reply was lost and the client sends it again, it finds no
-- lock, which is not an error then. Returns BullMQ's code, corrected.
local function retried(base, id, token, code)
  local memory = base .. 'meta:postponed:' .. id
  if code < 0 and redis.call('GET', memory) == token then return 0 end
  if code == 0 and redis.call('EXISTS', base .. 'meta:shape') == 1 then redis.call('SET', memory, token, 'PX', 60000) end
  return code
end

return retried
