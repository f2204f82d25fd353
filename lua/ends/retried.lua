local finished = use 'ends/finished'

-- BullMQ's retryJob puts a job back once: sent again, since its reply was lost, it finds no lock, which is not an error
-- then. Returns BullMQ's code, corrected. ended: the timestamp of the call
local function retried(base, id, ended, reply)
  local code = finished.code(reply, base, nil, id, ended)
  if reply == 0 then finished.remember(base, id, ended, 0) end
  return code
end

return retried
