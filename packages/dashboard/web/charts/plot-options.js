import { clock } from '../base/format.js'
import { colorOf } from '../base/theme.js'

/** @typedef {typeof import('uplot')} UPlotClass */

const FONT = '11px system-ui, sans-serif'

/**
 * @param {UPlotClass} UPlot
 * @param {import('./chart.js').ChartTerms} terms
 * @param {(index: number | null | undefined) => void} onCursor
 * @returns {uPlot.Options}
 */
export function plotOptions(UPlot, terms, onCursor) {
  const { lines, height, format } = terms
  const drawn = lines[0]?.kind === 'stacked' ? [...lines].reverse() : lines
  return {
    width: 300,
    height,
    legend: { show: false },
    padding: [10, 20, 0, 0],
    cursor: {
      sync: { key: 'queue' },
      drag: { x: false, y: false },
      points: { size: 6 },
      y: false,
    },
    scales: { x: { time: true }, y: { range: (_plot, _min, max) => [0, topOf(terms, max)] } },
    axes: [xAxis(), yAxis(format)],
    series: [{}, ...drawn.map((line) => seriesOf(UPlot, line))],
    hooks: { setCursor: [(plot) => onCursor(plot.cursor.idx)] },
  }
}

/**
 * @param {import('./chart.js').ChartTerms} terms
 * @param {number | null} max
 */
function topOf({ top = 1, most }, max) {
  return most ?? Math.max(top, (max ?? 0) * 1.12)
}

/**
 * @param {UPlotClass} UPlot
 * @param {import('./chart.js').Line} line
 * @returns {uPlot.Series}
 */
function seriesOf(UPlot, { label, color, kind }) {
  const isFilled = kind === 'area' || kind === 'stacked'
  return {
    label,
    width: kind === 'stacked' ? 1 : 1.75,
    points: { show: false },
    spanGaps: false,
    stroke: () => colorOf(color),
    ...(kind === 'dashed' && { dash: [5, 4], ...steps(UPlot) }),
    ...(isFilled && { fill: () => (kind === 'stacked' ? colorOf(color) : faint(colorOf(color))) }),
  }
}

/**
 * Values that hold until they change are drawn as steps.
 * @param {UPlotClass} UPlot
 */
function steps({ paths: { stepped } }) {
  return stepped ? { paths: stepped({ align: 1 }) } : {}
}

/** @param {string} color as `rgb(1, 2, 3)` */
export function faint(color, part = 0.16) {
  const [r, g, b] = color.match(/[\d.]+/g) ?? []
  return `rgba(${r}, ${g}, ${b}, ${part})`
}

/** @returns {uPlot.Axis} */
function xAxis() {
  return {
    ...lookOfAxis(),
    size: 28,
    space: 90,
    values: (_plot, splits, _i, _space, step) => splits.map((at) => timeOf(at, step)),
  }
}

/**
 * @param {(value: number) => string} format
 * @returns {uPlot.Axis}
 */
function yAxis(format) {
  return { ...lookOfAxis(), size: 58, space: 34, values: (_plot, splits) => splits.map((value) => format(value)) }
}

/** @returns {uPlot.Axis} */
function lookOfAxis() {
  return {
    font: FONT,
    stroke: () => colorOf('--muted'),
    grid: { stroke: () => colorOf('--grid'), width: 1 },
    ticks: { stroke: () => colorOf('--grid'), width: 1, size: 4 },
  }
}

/**
 * @param {number} at
 * @param {number} step both in seconds
 */
function timeOf(at, step) {
  return clock(new Date(at * 1000), step < 60)
}
