--[[
  Finds the jobs of a bulk that are new: BullMQ adds none for an existing id or a live deduplication id. Each is
  checked by itself: the caller knows which ids come twice.
  ARGV
    then two for each job: its id, or '' if it has none yet, and its deduplication id or ''
  Returns 1 for each new job, 0 for each other one.
]]
local admission = use 'admission/admission'

local base, found = string.sub(KEYS[1], 1, -11), {}
for at = 1, #ARGV, 2 do found[#found + 1] = admission.is_new(base, ARGV[at], ARGV[at + 1], {}) and 1 or 0 end
return found
