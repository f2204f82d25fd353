-- BullMQ's add scripts, for scripts that add many jobs: their keys are those of lua/verbs/admit-bulk.lua.
--   bulk.redis    what replaces `redis` for them, if anything; set before the first job
--   bulk.scripts  those in use, by kind: the functions of each are made once
local bulk = {
  make = {}, scripts = {}, keys = {}, args = {}, kind = nil,
  keys_of = {
    standard = { 1, 2, 3, 4, 5, 6, 7, 8, 9 },
    prioritized = { 9, 3, 4, 10, 6, 5, 7, 8, 11 },
    delayed = { 9, 3, 4, 6, 5, 8 },
  },
}

function bulk.make.standard(redis)
  --- @original addStandardJob functions
  return function(KEYS, ARGV)
    --- @original addStandardJob rest
  end
end

function bulk.make.prioritized(redis)
  --- @original addPrioritizedJob functions
  return function(KEYS, ARGV)
    --- @original addPrioritizedJob rest
  end
end

function bulk.make.delayed(redis)
  --- @original addDelayedJob functions
  return function(KEYS, ARGV)
    --- @original addDelayedJob rest
  end
end

-- Adds a job of this kind, whose three arguments for BullMQ begin at argv[at].
function bulk.add_as(kind, keys, argv, at)
  if kind ~= bulk.kind then
    for i, from in ipairs(bulk.keys_of[kind]) do bulk.keys[i] = keys[from] end
    bulk.kind = kind
  end
  bulk.args[1], bulk.args[2], bulk.args[3] = argv[at], argv[at + 1], argv[at + 2]
  local script = bulk.scripts[kind] or bulk.make[kind](bulk.redis or redis)
  bulk.scripts[kind] = script
  return script(bulk.keys, bulk.args)
end

-- Adds the job whose kind is argv[at], followed by BullMQ's three arguments.
function bulk.add(keys, argv, at)
  return bulk.add_as(argv[at], keys, argv, at + 1)
end

return bulk
