local add_standard_job = use 'bullmq/addStandardJob'
local touched = use 'gate/touched'

-- Adds a dead letter to the queue of this base, by BullMQ's add script, whose three arguments these are. Returns why it
-- could not, or nil. Redis does not roll back, so a partial letter is deleted: it would later look complete.
local function add_letter(base, args)
  local added, failure = pcall(add_standard_job.run, redis, add_standard_job.keys(base), args)
  if not added then
    redis.call('DEL', base .. cmsgpack.unpack(args[1])[2])
    return type(failure) == 'table' and failure or { err = failure }
  end
  touched.note(base)
end

return add_letter
