--[[
  Corrects the charge of a job once its cost is known. A repeated call for the same attempt settles only the difference.
  ARGV
    [1]  job id
    [2]  number of the attempt
    [3]  JSON: unit -> actual cost; '' is the unit of the rate
    [4]  how long it is remembered, ms
  Returns how many buckets and limits were corrected; 0 if the job is gone or stalled and started again, so that
  its charge is unknown; {unit} if no limit counts that unit: then nothing was done.
]]
local settling = use 'feedback/settling'
local wake = use 'gate/wake'
local shapes = use 'shape/shapes'

local base, now, shape = shapes.here(KEYS[1])
if not shape or shape.mode == 'off' then return 0 end
local charge, actuals = settling.open(base, shape, now, ARGV[1]), cjson.decode(ARGV[3])
if not charge or charge.attempt ~= ARGV[2] then return 0 end
local unknown = settling.unknown(charge, actuals)
if unknown then return { unknown } end
for unit, actual in pairs(actuals) do
  settling.correct(charge, unit, settling.outstanding(charge, ARGV[2], unit, actual, ARGV[4]))
end
local corrected, gave = settling.close(charge)
if gave then wake.sleeper(base) end
return corrected
