local add_delayed_job = use 'bullmq/addDelayedJob'
local add_job_scheduler = use 'bullmq/addJobScheduler'
local add_parent_job = use 'bullmq/addParentJob'
local add_prioritized_job = use 'bullmq/addPrioritizedJob'
local add_standard_job = use 'bullmq/addStandardJob'
local wake = use 'gate/wake'

-- BullMQ's add scripts, by its names. One is made when it is first asked for.
local add_scripts = {}

local named = {}
function named.addStandardJob() return add_standard_job end
function named.addPrioritizedJob() return add_prioritized_job end
function named.addDelayedJob() return add_delayed_job end
function named.addParentJob() return add_parent_job end
function named.addJobScheduler() return add_job_scheduler end

function add_scripts.named(name) return named[name]() end

-- Returns a function that adds one of many jobs to a queue: by the name of its script, whose three arguments begin at
-- argv[at].
function add_scripts.adder(redis, base)
  local keys, args = {}, {}
  return function(name, argv, at)
    local script = named[name]()
    keys[name] = keys[name] or script.keys(base)
    args[1], args[2], args[3] = argv[at], argv[at + 1], argv[at + 2]
    return script.run(redis, keys[name], args)
  end
end

-- Adds a job to the queue of this base, by one of BullMQ's add scripts and its three arguments. Returns why it could not, or
-- nil. Redis does not roll back, so a partial job is deleted: a letter, or a job that is back, would look complete.
function add_scripts.whole(script, redis, base, args)
  local added, failure = pcall(script.run, redis, script.keys(base), args)
  if not added then
    redis.call('DEL', base .. cmsgpack.unpack(args[1])[2])
    return type(failure) == 'table' and failure or { err = failure }
  end
  wake.note(base)
end

return add_scripts
