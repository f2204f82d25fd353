local touched = use 'gate/touched'

-- Adds a job to the queue of this base, by one of BullMQ's add scripts and its three arguments. Returns why it could not, or
-- nil. Redis does not roll back, so a partial job is deleted: a letter, or a job that is back, would look complete.
local function add_whole(script, redis, base, args)
  local added, failure = pcall(script.run, redis, script.keys(base), args)
  if not added then
    redis.call('DEL', base .. cmsgpack.unpack(args[1])[2])
    return type(failure) == 'table' and failure or { err = failure }
  end
  touched.note(base)
end

return add_whole
