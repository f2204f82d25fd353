local add_delayed_job = use 'bullmq/addDelayedJob'
local add_job_scheduler = use 'bullmq/addJobScheduler'
local add_parent_job = use 'bullmq/addParentJob'
local add_prioritized_job = use 'bullmq/addPrioritizedJob'
local add_standard_job = use 'bullmq/addStandardJob'

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

return add_scripts
